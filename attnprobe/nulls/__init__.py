"""What a test says of the same model under attentions that mean nothing, and what it would say of the best one: without
the first a number cannot be read, and with both it becomes a skill from 0 (meaningless) to 1 (as good as possible)."""
