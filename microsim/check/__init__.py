"""The proof of sameness: missions flown in processes of different environments give the same messages."""
