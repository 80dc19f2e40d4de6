import { once } from 'node:events';
import type { Server } from 'node:net';
import { eventually } from './eventually.js';

/** Whether a port is held, by its error. */
const isHeld = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'EADDRINUSE';

/**
 * Does what listens at a port, once more where that is still held: while a program is forked it holds the sockets of who starts it, so a port that
 * was just closed can be taken a moment later only.
 * @returns what it gives
 */
export const whereFree = <T extends object>(listen: () => Promise<T>): Promise<T> =>
  eventually(() =>
    listen().catch((error: unknown) => {
      if (isHeld(error)) return false;
      throw error;
    }),
  );

/** Has a server listen at a port that it may have had before. @param port 0 for any */
export async function listening(server: Server, port: number, host = '127.0.0.1'): Promise<void> {
  await whereFree(() => {
    server.listen(port, host);
    return once(server, 'listening');
  });
}
