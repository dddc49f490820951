"""Draft & Verify's offline search: which sublayers to leave out when drafting, by the measured speed."""
