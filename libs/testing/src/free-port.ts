import { randomInt } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';

/** Behind the last port that `fetch` never connects to, whoever listens there: 10080, by the Fetch Standard's "bad port". */
const firstPort = 10_081;
/** Systems give connections that go out a port from here on, on Linux; others begin higher. */
const firstEphemeralPort = 32_768;

/**
 * A TCP port of the loopback address that nothing listens on. The system never hands it to a connection, and no other
 * process that asks here gets it while this one runs: a server may listen on it later, and again after it was down, and
 * whoever waits for that server does not meet another one.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(firstPort, firstEphemeralPort);
    if (reserve(port) && (await canListen(port))) return port;
  }
}

const folder = join(tmpdir(), `rookery-test-ports-${userInfo().uid}`);
const reserved = new Set<string>();

/** A file per port with the process that it belongs to; what a process left that was killed is taken over. */
function reserve(port: number): boolean {
  const file = join(folder, String(port));
  for (;;) {
    try {
      mkdirSync(folder, { recursive: true });
      writeFileSync(file, String(process.pid), { flag: 'wx' });
      if (reserved.size === 0) process.once('exit', release);
      reserved.add(file);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    if (isHeld(file)) return false;
    rmSync(file, { force: true });
  }
}

function isHeld(file: string): boolean {
  try {
    // A file that is still empty is being written.
    process.kill(Number(readFileSync(file, 'utf8')) || process.pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function release(): void {
  for (const file of reserved) rmSync(file, { force: true });
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
