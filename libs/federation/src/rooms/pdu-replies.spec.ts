import type { Clock, Config } from '@rookery/platform';
import type { EventStore } from '@rookery/rooms';
import type { Readable } from 'node:stream';
import type { EventDeliveries } from './event-deliveries.js';
import { PduReplies } from './pdu-replies.js';

it('say how much they hold while they are read', () => {
  const replies = new PduReplies({} as EventStore, {} as Config, {} as Clock, {} as EventDeliveries);
  const ids = Array.from({ length: 10_000 }, (_, n) => `$${n}`);
  const heldBytes = (state: string[], authChain: string[]): number => {
    const to = { origin: 'far.test', method: '/state' } as const;
    const reply = replies.lists(to, { pdus: state, auth_chain: new Set(authChain) });
    (reply.body as Readable).destroy();
    return reply.heldBytes;
  };
  expect(heldBytes([], [])).toBe(0);
  // As many bytes as an id has at least.
  expect(heldBytes(ids, ids)).toBeGreaterThan(20_000 * 44);
  expect(heldBytes(ids, [])).toBe(heldBytes([], ids));
});
