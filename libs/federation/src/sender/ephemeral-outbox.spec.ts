import { offlineState, type Receipt } from '@rookery/ephemeral';
import { EphemeralOutbox } from './ephemeral-outbox.js';

const receipt = (userId: string, eventId: string, threadId?: string): Receipt => ({
  ...{ roomId: '!r:a.test', type: 'm.read', userId, eventId, threadId, ts: 1, eventStreamOrdering: undefined },
});
const contents = (outbox: EphemeralOutbox, limit = 100): unknown[] =>
  outbox.next(limit, 0).edus.map(({ text }) => (JSON.parse(text) as { content: unknown }).content);

describe('news for one server', () => {
  it('hold the latest of each, however slowly they go', () => {
    const outbox = new EphemeralOutbox();
    for (let i = 0; i < 100; i++) {
      outbox.addTyping({ roomId: '!r:a.test', userId: '@u:a.test', typing: i % 2 === 0 });
      outbox.addReceipts([receipt('@u:a.test', `$${i}`)]);
    }
    expect(contents(outbox)).toEqual([
      { '!r:a.test': { 'm.read': { '@u:a.test': { event_ids: ['$99'], data: { ts: 1 } } } } },
      { room_id: '!r:a.test', user_id: '@u:a.test', typing: false },
    ]);
  });

  it('put receipts of one user in several threads into EDUs of their own', () => {
    const outbox = new EphemeralOutbox();
    outbox.addReceipts([receipt('@u:a.test', '$1'), receipt('@u:a.test', '$2', 'main'), receipt('@v:a.test', '$3')]);
    const of = (eventId: string, data: object): object => ({ event_ids: [eventId], data });
    expect(contents(outbox)).toEqual([
      { '!r:a.test': { 'm.read': { '@u:a.test': of('$1', { ts: 1 }), '@v:a.test': of('$3', { ts: 1 }) } } },
      { '!r:a.test': { 'm.read': { '@u:a.test': of('$2', { ts: 1, thread_id: 'main' }) } } },
    ]);
  });

  it('stay until they are delivered, and longer where they have changed since', () => {
    const outbox = new EphemeralOutbox();
    outbox.addReceipts([receipt('@u:a.test', '$1'), receipt('@v:a.test', '$1')]);
    const sent = outbox.next(100, 0);
    outbox.addReceipts([receipt('@u:a.test', '$2')]);
    expect(outbox.size).toBe(2);
    sent.delivered();
    expect(contents(outbox)).toEqual([
      { '!r:a.test': { 'm.read': { '@u:a.test': { event_ids: ['$2'], data: { ts: 1 } } } } },
    ]);
  });

  it('are bounded, in one EDU and altogether', () => {
    const outbox = new EphemeralOutbox();
    for (let i = 0; i < 3_000; i++) outbox.addPresence([offlineState(`@u${i}:a.test`)]);
    for (let i = 0; i < 2_000; i++) outbox.addTyping({ roomId: '!r:a.test', userId: `@u${i}:a.test`, typing: true });
    expect(outbox.size).toBe(2_500);
    const edus = contents(outbox, 100) as { push?: unknown[] }[];
    expect(edus).toHaveLength(100);
    expect(Math.max(...edus.map(({ push }) => push?.length ?? 0))).toBe(50);
    expect(contents(outbox, 1)).toHaveLength(1);
  });
});
