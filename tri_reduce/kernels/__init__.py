"""Device code: jit bodies only. No configs, no torch, no questions about the device."""
