package weblog

import "hash/maphash"

// names numbers texts in the order in which they first occur. A map of strings would take 24 bytes for each slot and 32
// for each text, and most lookups would access main memory several times. Here, a slot has eight bytes, and the texts
// are stored one after another.
type names struct {
	seed  maphash.Seed
	slots []nameSlot // their number is a power of two; at most three quarters are taken
	pages []*namePage
	count int
	hash  uint64 // of the text that was looked for last
}

// nameSlot has a part of the hash of a text, and its number plus 1; 0 if there is none.
type nameSlot struct {
	tag    uint32
	number int32
}

// namePage has the texts of consecutive numbers, each of at most MaxLine bytes.
type namePage struct {
	ends [pageNames]uint32
	text []byte
}

// The memory for a name in addition to its text, which a growing page may hold twice: the end of the text, a share of
// the table of slots, which is three eighths full after it has grown, and a share of the smaller table that it
// replaces.
const (
	perName   = 8*3 + 8*3/2 + 4
	maxNames  = 1 << 30
	pageNames = 1 << 8
)

func newNames() names { return names{seed: maphash.MakeSeed(), slots: make([]nameSlot, 64)} }

// at returns a text by its number.
func (n *names) at(number int32) []byte {
	p, i, from := n.pages[number/pageNames], number%pageNames, uint32(0)
	if i > 0 {
		from = p.ends[i-1]
	}
	return p.text[from:p.ends[i]:p.ends[i]]
}

// find returns the number of a text.
func (n *names) find(text []byte) (number int32, known bool) {
	n.hash = maphash.Bytes(n.seed, text)
	tag, mask := uint32(n.hash>>32), uint64(len(n.slots)-1)
	for i := n.hash & mask; ; i = (i + 1) & mask {
		switch s := n.slots[i]; {
		case s.number == 0:
			return 0, false
		case s.tag == tag && string(n.at(s.number-1)) == string(text):
			return s.number - 1, true
		}
	}
}

// add adds the text that find has just looked for, and returns its number.
func (n *names) add(text []byte) (number int32) {
	if 4*(n.count+1) > 3*len(n.slots) {
		n.grow()
	}
	number = int32(n.count)
	if number%pageNames == 0 {
		n.pages = append(n.pages, &namePage{})
	}
	p := n.pages[number/pageNames]
	p.text = append(p.text, text...)
	p.ends[number%pageNames] = uint32(len(p.text))
	n.put(n.hash, number)
	n.count++
	return number
}

func (n *names) put(hash uint64, number int32) {
	mask := uint64(len(n.slots) - 1)
	i := hash & mask
	for n.slots[i].number > 0 {
		i = (i + 1) & mask
	}
	n.slots[i] = nameSlot{uint32(hash >> 32), number + 1}
}

func (n *names) grow() {
	n.slots = make([]nameSlot, 2*len(n.slots))
	for number := range int32(n.count) {
		n.put(maphash.Bytes(n.seed, n.at(number)), number)
	}
}
