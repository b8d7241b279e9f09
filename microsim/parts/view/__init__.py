"""What people look at: the web viewer and the dashboard in the terminal."""
