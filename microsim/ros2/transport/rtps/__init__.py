"""As much of RTPS, the protocol under DDS, as it takes to answer service clients of Fast DDS.

Such a client knows its answer by a field in the protocol's own headers ("related sample identity"), which Cyclone DDS
neither reads nor writes. So services have a second, small participant of their own, which speaks to Fast DDS alone:
to everybody else it does not exist. Topics are not its business.

    packets.py      the bytes: https://www.omg.org/spec/DDSI-RTPS/2.5
    reliability.py  what has arrived, what has not, what must be sent again
    peers.py        what discovery tells of the others
    participant.py  sockets, a thread, and who is told what
"""
