package objstore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/tests/s3server"
)

func TestContractMem(t *testing.T) {
	contract{store: NewMem(nil), listKeys: 1500, partBytes: 1 << 20}.run(t)
}

func TestContractDir(t *testing.T) {
	s, err := Open(t.Context(), "dir://"+t.TempDir(), OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contract{store: s, listKeys: 200, partBytes: 1 << 20}.run(t) // each one costs fsyncs
}

func TestContractDirInMemory(t *testing.T) {
	contract{store: NewDir(vfs.NewMem(), "/tier"), listKeys: 1500, partBytes: 1 << 20}.run(t)
}

func openForTest(t *testing.T, url string) Store {
	t.Helper()
	s, err := Open(t.Context(), url, OpenOptions{PartBytes: testPartBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContractS3(t *testing.T) {
	srv := s3server.Start(t)
	srv.Setenv(t)
	contract{store: openForTest(t, srv.URL), wholeParts: true, listKeys: 1500, partBytes: testPartBytes}.run(t)
}

func TestContractMinio(t *testing.T) {
	srv := s3server.Start(t)
	srv.Setenv(t)
	contract{store: openForTest(t, srv.MinioURL), wholeParts: true, listKeys: 1500, partBytes: testPartBytes}.run(t)
}
