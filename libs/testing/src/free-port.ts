import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Systems give connections that go out a port from here on, on Linux; others begin higher. */
const firstEphemeralPort = 32_768;

/**
 * A TCP port of the loopback address that nothing listens on. The system never hands it to a connection, so that a server
 * may listen on it later, and again after it was down; one that the system chose may be taken meanwhile.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, firstEphemeralPort);
    if (await canListen(port)) return port;
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
