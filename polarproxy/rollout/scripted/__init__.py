"""A model that plays a part: an engine that answers chats from a script, with token ids, so that a harness can be tried out."""
