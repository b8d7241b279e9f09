"""What builds on the core, a folder each. `docs/understand/architecture.md` says what a part is; the core imports none of them."""
