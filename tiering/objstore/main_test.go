package objstore

import (
	"os"
	"testing"

	"varve/tests/s3server"
)

func TestMain(m *testing.M) {
	s3server.TempInMemory()
	os.Exit(m.Run())
}
