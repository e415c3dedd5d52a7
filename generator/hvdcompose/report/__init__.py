"""What a person is shown: pure functions from facts to rows and lines."""
