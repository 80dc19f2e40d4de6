import type { HttpReply } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Readable } from 'node:stream';
import { requesterOf } from '../e2ee.fixture.js';
import type { BackedUpSession } from '../key-backup/backup.query.js';
import type { KeyBackupService } from '../key-backup/key-backup.service.js';
import { KeyBackupController } from './key-backup.controller.js';

describe('a key backup that is read', () => {
  let pages = 0;
  /** Without an end, so that it cannot be gathered. */
  async function* endless(): AsyncGenerator<readonly BackedUpSession[], void> {
    for (;;) {
      const session = { roomId: '!a', sessionId: `s${++pages}`, sessionData: `{"x":"${'x'.repeat(50_000)}"}` };
      yield Promise.resolve([{ ...session, firstMessageIndex: 1, forwardedCount: 2, isVerified: true }]);
    }
  }
  const backups = {
    pages: async (_userId: string, version: string) => {
      if (version !== '1') throw MatrixError.notFound('There is no such backup');
      return endless();
    },
  } as unknown as KeyBackupService;
  const controller = new KeyBackupController(backups);
  const alice = requesterOf('@alice:rookery.test');

  it.each([
    ['whole', (version: string) => controller.getAll(alice, { version }), '{"rooms":{"!a":{"sessions":{"s'],
    ['for a room', (version: string) => controller.getRoom(alice, { version }, '!a'), '{"sessions":{"s'],
  ] as const)('%s comes as fast as it is taken', async (_, read, head) => {
    pages = 0;
    const reply: HttpReply = await read('1');
    expect(reply.heldBytes).toBeGreaterThan(1_000_000);
    let text = '';
    for await (const piece of reply.body as Readable) if ((text += String(piece)).length > 1_000_000) break;
    expect(text.slice(0, head.length)).toBe(head);
    // What was read ahead is little.
    expect(pages).toBeLessThan(1_000_000 / 50_000 + 10);
    await expect(read('2')).rejects.toMatchObject({ status: 404 });
  });
});
