"""For tests, ours and the users: conformance suites of what the supervisor rests on."""
