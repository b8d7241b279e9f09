"""The part of RTPS, the protocol under DDS, that is needed to answer service clients of Fast DDS.

Such a client recognises its reply by a field of the protocol's own headers ("related sample identity"), which Cyclone
DDS neither reads nor writes. So services have a second, small participant, which communicates with Fast DDS only; other
nodes do not see it. It does not handle topics.

    packets.py              the bytes: https://www.omg.org/spec/DDSI-RTPS/2.5
    peers.py                what discovery reported about others, and what has arrived, is missing or must be sent again
    service_participant.py  sockets, a thread, and the conversation with each peer
"""
