package rdb

import "encoding/binary"

// jones is the polynomial of Redis's checksum, with reflected bits, as the tables require.
const jones = 0x95ac9329ac4bc9b5

// tables are tables for eight bytes at a time: tables[k][b] is the checksum of the byte b followed
// by k zeros.
var tables = makeTables()

func makeTables() *[8][256]uint64 {
	var made [8][256]uint64
	for b := range 256 {
		sum := uint64(b)
		for range 8 {
			sum = sum>>1 ^ jones*(sum&1)
		}
		made[0][b] = sum
	}
	for b := range 256 {
		for k := 1; k < 8; k++ {
			before := made[k-1][b]
			made[k][b] = made[0][byte(before)] ^ before>>8
		}
	}
	return &made
}

// checksum continues a checksum with more bytes. The checksum of no bytes is 0.
//
// hash/crc64 has the same algorithm, but for other polynomials than its own it computes tables in
// each call.
func checksum(sum uint64, p []byte) uint64 {
	for len(p) >= 8 {
		sum ^= binary.LittleEndian.Uint64(p)
		sum = tables[7][byte(sum)] ^ tables[6][byte(sum>>8)] ^ tables[5][byte(sum>>16)] ^ tables[4][byte(sum>>24)] ^
			tables[3][byte(sum>>32)] ^ tables[2][byte(sum>>40)] ^ tables[1][byte(sum>>48)] ^ tables[0][byte(sum>>56)]
		p = p[8:]
	}
	for _, b := range p {
		sum = tables[0][byte(sum)^b] ^ sum>>8
	}
	return sum
}
