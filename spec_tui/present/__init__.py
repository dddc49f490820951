"""What a run looks like in words, styles and rows, whatever draws it."""
