"""What builds on the core, a folder each. The core imports none of them. See `docs/understand/architecture.md`."""
