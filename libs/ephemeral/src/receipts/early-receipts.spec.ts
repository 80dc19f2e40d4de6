import { EarlyReceipts } from './early-receipts.js';
import type { Receipt } from '../model/receipt.js';

describe('EarlyReceipts', () => {
  const receipt = (user: string, eventId: string, threadId?: string): Receipt => ({
    ...{ roomId: '!r:x', type: 'm.read', userId: user, eventId, threadId, ts: 1, eventStreamOrdering: undefined },
  });
  const idsOf = (receipts: readonly Receipt[]): string[] => receipts.map(({ userId }) => userId).sort();

  it('gives each out once, when its event is there', () => {
    const early = new EarlyReceipts();
    early.add([receipt('@a:x', '$1'), receipt('@b:y', '$1'), receipt('@b:y', '$2', 'main')], 0);
    expect(early.take(['$none'], 1)).toEqual([]);
    expect(idsOf(early.take(['$1'], 1))).toEqual(['@a:x', '@b:y']);
    expect(early.take(['$1'], 1)).toEqual([]);
    expect(early.size).toBe(1);
    expect(idsOf(early.take(['$2'], 1))).toEqual(['@b:y']);
    expect(early.size).toBe(0);
  });

  it('gives out those of users in a room', () => {
    const early = new EarlyReceipts();
    const elsewhere = { ...receipt('@a:x', '$1'), roomId: '!other:x' };
    early.add([receipt('@a:x', '$1'), receipt('@b:x', '$1'), receipt('@a:x', '$2', 'main'), elsewhere], 0);
    expect(early.takeOf('!r:x', ['@a:x', '@c:z'], 1).map(({ eventId }) => eventId)).toEqual(['$1', '$2']);
    expect(early.takeOf('!r:x', ['@a:x'], 1)).toEqual([]);
    expect(early.takeOf('!r:x', ['@b:x'], 3_600_000)).toEqual([]);
    expect(idsOf(early.take(['$1'], 1))).toEqual(['@a:x']);
    expect(early.size).toBe(0);
  });

  it('keeps the latest of each user, room and thread, and nothing for ever', () => {
    const early = new EarlyReceipts();
    early.add([receipt('@a:x', '$1')], 0);
    early.add([receipt('@a:x', '$2')], 0);
    early.add([receipt('@a:x', '$1', 'main')], 0);
    expect(early.size).toBe(2);
    expect(early.take(['$1'], 1).map(({ threadId }) => threadId)).toEqual(['main']);
    expect(early.take(['$2'], 3_600_000)).toEqual([]);
    expect(early.size).toBe(0);
  });

  it('is bounded for each server, and in all', () => {
    const early = new EarlyReceipts();
    early.add([receipt('@quiet:y', '$q')], 0);
    for (let n = 0; n < 600; n++) early.add([receipt(`@u${n}:x`, '$1')], 0);
    expect(early.size).toBe(501);
    expect(early.take(['$q'], 1)).toHaveLength(1);
    for (let server = 0; server < 50; server++)
      for (let n = 0; n < 500; n++) early.add([receipt(`@u${n}:s${server}`, '$1')], 0);
    expect(early.size).toBe(20_000);
    expect(early.take(['$1'], 1)).toHaveLength(20_000);
  });
});
