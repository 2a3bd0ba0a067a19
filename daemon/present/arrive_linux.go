package present

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Groups of rtnetlink(7) that tell of routes: RTNLGRP_IPV4_ROUTE is 7 and
// RTNLGRP_IPV6_ROUTE 11 (linux/rtnetlink.h), each a bit here.
const routeGroups = 1<<(7-1) | 1<<(11-1)

// Arrivals calls arrived each time that this machine comes into a network, as
// InNetwork understands it, until ctx ends. arrived must not block.
func Arrivals(ctx context.Context, arrived func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink socket for routes: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: routeGroups}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("joining the kernel's news of routes: %w", err)
	}
	news := os.NewFile(uintptr(fd), "routes")
	defer news.Close()
	defer context.AfterFunc(ctx, func() { _ = news.SetReadDeadline(time.Unix(1, 0)) })() // fails once it is closed
	return follow(ctx, news, InNetwork, arrived)
}

// follow looks after each of the news, whatever it says: a message that was lost
// or cut short is as good as one that was read.
func follow(ctx context.Context, news *os.File, inNetwork func() bool, arrived func()) error {
	buf := make([]byte, 1)
	for was := inNetwork(); ; {
		_, err := news.Read(buf)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("reading the kernel's news of routes: %w", err)
		}
		is := inNetwork()
		if is && !was {
			arrived()
		}
		was = is
	}
}
