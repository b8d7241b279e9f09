"""Public names of this part: each is an attribute of `microsim`, too, and imported when first used."""

PUBLIC = {
    "transport.memory": ("MemoryTransport",),
    "transports": ("TransportKind",),
}
