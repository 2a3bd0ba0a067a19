package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/wire"
)

// ask makes a client of a relay that plays one machine, pi, and its serial
// instrument. A program of yours has client.New(client.Config{URL: …, Token: …}).
func ask() (c *client.Client, stop func()) {
	relay, end := clienttest.Start()
	c, err := client.New(client.Config{URL: relay.URL, Token: clienttest.OwnerToken})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		end()
	}
}

// Files are written and read in a session, which is a place on a machine.
func Example() {
	c, stop := ask()
	defer stop()
	ctx := context.Background()
	s, err := c.Open(ctx, client.Place{Machine: "pi"})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Write(ctx, "note.txt", []byte("far away\n"), false, nil); err != nil {
		log.Fatal(err)
	}
	got, err := s.Read(ctx, "note.txt", 0, 3)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", got.Content)
	// Output: far
}

// What is wired to a machine is listed without a session.
func ExampleClient_Devices() {
	c, stop := ask()
	defer stop()
	list, err := c.Devices(context.Background(), "pi", "serial")
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range list.Devices {
		fmt.Println(d.ID, d.Desc)
	}
	// Output: serial:usb-2341:0043-95530 Arduino Uno
}

// A failure has a code, which holds across relay and device.
func ExampleSession_Read() {
	c, stop := ask()
	defer stop()
	ctx := context.Background()
	s, err := c.Open(ctx, client.Place{Machine: "pi"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.Read(ctx, "nothing.txt", 0, 100)
	fmt.Println(errors.Is(err, wire.PathNotFound))
	// Output: true
}

// An instrument is asked in one operation, so that nobody gets between.
func ExampleSession_SerialTransact() {
	c, stop := ask()
	defer stop()
	ctx := context.Background()
	s, err := c.Open(ctx, client.Place{Machine: "pi"})
	if err != nil {
		log.Fatal(err)
	}
	got, err := s.SerialTransact(ctx, clienttest.SerialID, wire.SerialTransact{Data: []byte("*IDN?\n"), Until: []byte("\n")}, false)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.StopReason)
	// Output: until
}
