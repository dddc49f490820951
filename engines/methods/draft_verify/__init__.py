"""Draft & Verify: self-speculation with searched layers."""
