"""Controllers: code in a file of its own that commands robots from what their sensors send."""
