package main

func writeDocs(*results) error { return nil }
