"""For coding agents: `microsim mcp`, a server of the Model Context Protocol."""
