package objstore

import "strings"

// Names of the dir driver. A key "a/b/c" is the file root/a/b/c.obj: the suffix keeps
// an object "a" apart from the folder that "a/b" needs, and the names that begin
// with a dot are the driver's own.
const (
	objectSuffix = ".obj"
	tempFolder   = ".tmp"
	lockFile     = ".lock"
)

const upperHex = "0123456789ABCDEF"

// escapePart turns one part of a key into a file name. '%' and whatever could leave
// the folder, hide the file or be taken for one of the driver's names is escaped as
// %XX; for parts that ValidateKey accepts the result has at most 206 bytes. It is
// injective: unescapePart is its inverse.
func escapePart(part string) string {
	var b strings.Builder
	for i := range len(part) {
		c := part[i]
		leadingDot := c == '.' && i == 0
		suffixDot := c == '.' && part[i:] == objectSuffix
		if c == '%' || c == '/' || c == '\\' || c < 0x20 || c == 0x7f || leadingDot || suffixDot {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unescapePart reverses escapePart; ok is false for a name it never makes.
func unescapePart(name string) (part string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		hi, lo := strings.IndexByte(upperHex, name[i+1]), strings.IndexByte(upperHex, name[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	part = b.String()
	return part, part != "" && escapePart(part) == name
}

// folderPath returns the path below the root of the folder for keys that begin with
// key + "/".
func folderPath(key string) string {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = escapePart(p)
	}
	return strings.Join(parts, "/")
}

// keyPath returns the path below the root of a valid key's file.
func keyPath(key string) string { return folderPath(key) + objectSuffix }

// dirEntry is a name in a folder, as the part of a key that it stands for. order
// sorts entries as the keys behind them: a folder's keys all begin with part + "/".
type dirEntry struct {
	name  string
	part  string
	order string
	isDir bool
}

// parseEntry says what a name in a folder of the store is; ok is false for names
// that are not the driver's.
func parseEntry(name string) (dirEntry, bool) {
	if strings.HasPrefix(name, ".") {
		return dirEntry{}, false
	}
	if base, isObject := strings.CutSuffix(name, objectSuffix); isObject {
		part, ok := unescapePart(base)
		return dirEntry{name: name, part: part, order: part}, ok
	}
	part, ok := unescapePart(name)
	return dirEntry{name: name, part: part, order: part + "/", isDir: true}, ok
}
