package boxsim

// Draw draws.
func Draw(d Decode, rows []Row, today []Today) ([]byte, error) { return nil, nil }
