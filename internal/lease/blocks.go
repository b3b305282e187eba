package lease

// blocks are the sums of the quantities of consecutive leases in order, blockLeases in each. With
// 10,000 holders, the time after which a request would be granted is thus found by reading some 80
// sums and the leases of one block, and not all leases.
type blocks []int64

// blockLeases is near the square root of 10,000, which makes the sum of both numbers small.
const blockLeases = 128

// sumBlocks computes all sums.
func (s *Leases) sumBlocks() {
	s.blocks = append(s.blocks[:0], make(blocks, (s.live+blockLeases-1)/blockLeases)...)
	for i, slot := range s.order[:s.live] {
		s.blocks[i/blockLeases] += s.slots[slot].Quantity
	}
}

// addToBlock adds to the quantity of the lease at a position, which may be the first of a new block.
func (s *Leases) addToBlock(position int, quantity int64) {
	if position/blockLeases == len(s.blocks) {
		s.blocks = append(s.blocks, 0)
	}
	s.blocks[position/blockLeases] += quantity
}

// moveInBlocks follows a lease that has moved in order. The leases between have moved by one position,
// so one lease of each block on the way has entered the next block.
func (s *Leases) moveInBlocks(from, to int) {
	quantity := s.quantity(to)
	s.blocks[from/blockLeases] -= quantity
	s.blocks[to/blockLeases] += quantity
	for b := from/blockLeases + 1; b <= to/blockLeases; b++ {
		entered := s.quantity(b*blockLeases - 1)
		s.blocks[b-1] += entered
		s.blocks[b] -= entered
	}
	for b := from / blockLeases; b > to/blockLeases; b-- {
		entered := s.quantity(b * blockLeases)
		s.blocks[b] += entered
		s.blocks[b-1] -= entered
	}
}

// removeFromBlocks removes the first leases in order from the sums, before they are removed. There are
// fewer than a block has.
func (s *Leases) removeFromBlocks(leases int) {
	s.blocks = s.blocks[:(s.live+blockLeases-1)/blockLeases]
	for b := range s.blocks {
		first := b * blockLeases
		entered := int64(0) // the block before
		for _, slot := range s.order[first:min(first+leases, s.live)] {
			entered += s.slots[slot].Quantity
		}
		s.blocks[b] -= entered
		if b > 0 {
			s.blocks[b-1] += entered
		}
	}
}

// endOfOthers implements leaseSet. It skips the blocks that must end before that instant.
func (s *Leases) endOfOthers(position int, permits int64) int64 {
	others, own := s.held, int64(0)
	if position >= 0 {
		own = s.quantity(position)
	}
	others -= own
	for b, quantity := range s.blocks {
		if position >= 0 && position/blockLeases == b {
			quantity -= own
		}
		if others-quantity > permits {
			others -= quantity
			continue
		}
		for i := b * blockLeases; i < s.live; i++ {
			if i == position {
				continue
			}
			if others -= s.quantity(i); others <= permits {
				return s.slots[s.order[i]].End
			}
		}
	}
	return s.Expires()
}
