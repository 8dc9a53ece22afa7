"""The Slot State Store: what past requests needed, kept so that it helps the next one (Fig. 5 of the paper)."""
