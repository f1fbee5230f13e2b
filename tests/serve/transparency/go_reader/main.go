// Reads a log by the tools of Go's checksum database: golang.org/x/mod/sumdb, as released.
//
// Usage: go_reader URL VERIFIER_KEY OLD_SIZE OLD_ROOT. It opens the checkpoint with the key, proves by tiles that every
// leaf of LEAVES (one hash a line on standard input, base64) is in the tree, and that the tree began as the old one.
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type tiles struct{ url string }

func (t tiles) Height() int { return 8 }

func (t tiles) SaveTiles(_ []tlog.Tile, _ [][]byte) {}

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, one := range wanted {
		// Go's paths have the height of tiles before the level; C2SP's do not, since it is always 8.
		data, err := read(t.url + "/tile/" + strings.TrimPrefix(one.Path(), "tile/8/"))
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

// By hand, since net/http takes longer to build than all else.
func read(url string) ([]byte, error) {
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	connection, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	fmt.Fprintf(connection, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
	reply, err := io.ReadAll(connection)
	head, body, _ := strings.Cut(string(reply), "\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		return nil, fmt.Errorf("%s: %s", url, head)
	}
	return []byte(body), err
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func hash(text string) (found tlog.Hash) {
	copy(found[:], must(base64.StdEncoding.DecodeString(text)))
	return found
}

func main() {
	url, key, oldSize, oldRoot := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	verifiers := note.VerifierList(must(note.NewVerifier(key)))
	signed := must(note.Open(must(read(url+"/checkpoint")), verifiers))
	lines := strings.Split(signed.Text, "\n")
	tree := tlog.Tree{N: must(strconv.ParseInt(lines[1], 10, 64)), Hash: hash(lines[2])}
	reader := tlog.TileHashReader(tree, tiles{url})
	input := bufio.NewScanner(os.Stdin)
	for index := int64(0); input.Scan(); index++ {
		proof := must(tlog.ProveRecord(tree.N, index, reader))
		if err := tlog.CheckRecord(proof, tree.N, tree.Hash, index, hash(input.Text())); err != nil {
			must(0, fmt.Errorf("leaf %d: %w", index, err))
		}
	}
	size := must(strconv.ParseInt(oldSize, 10, 64))
	proof := must(tlog.ProveTree(tree.N, size, reader))
	if err := tlog.CheckTree(proof, tree.N, tree.Hash, size, hash(oldRoot)); err != nil {
		must(0, fmt.Errorf("the old tree: %w", err))
	}
	fmt.Printf("%s %d\n", lines[0], tree.N)
}
