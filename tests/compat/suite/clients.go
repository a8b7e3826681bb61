package main

// clients lists every client in the order of the table.
func clients() []Client {
	return []Client{kcatClient()}
}
