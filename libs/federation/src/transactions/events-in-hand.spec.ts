import { setImmediate as nextTurn } from 'node:timers/promises';
import { EventsInHand, mostOfOrigin } from './events-in-hand.js';

describe('events that are on their way into rooms', () => {
  const ids = (count: number, name = '$'): string[] => Array.from({ length: count }, (_, n) => `${name}${n}`);
  const waits = async (hand: EventsInHand, origin: string): Promise<boolean> => {
    let isOver = false;
    void hand.room(origin).then(() => (isOver = true));
    await nextTurn();
    return !isOver;
  };

  it('let their server send more once some are in their rooms', async () => {
    const hand = new EventsInHand();
    for (const id of ids(mostOfOrigin)) hand.add('a.test', '!a', id);
    expect([await waits(hand, 'a.test'), await waits(hand, 'b.test')]).toEqual([true, false]);
    let isOver = false;
    void hand.room('a.test').then(() => (isOver = true));
    hand.remove('!a', ['$0', '$unknown']);
    await nextTurn();
    expect([isOver, hand.of('a.test')]).toEqual([true, mostOfOrigin - 1]);
    hand.removeAll('!a');
    expect([hand.of('a.test'), hand.originsIn('!a').size]).toEqual([0, 0]);
  });

  it('do not count in a room that is stuck', async () => {
    const hand = new EventsInHand();
    for (const id of ids(mostOfOrigin)) hand.add('a.test', '!a', id);
    hand.add('a.test', '!b', '$b');
    let isOver = false;
    void hand.room('a.test').then(() => (isOver = true));
    hand.stuck('!a', true);
    await nextTurn();
    expect([isOver, hand.of('a.test')]).toEqual([true, 1]);
    hand.stuck('!a', false);
    expect(await waits(hand, 'a.test')).toBe(true);
    hand.release();
  });

  it('are those of the server that sent them first', () => {
    const hand = new EventsInHand();
    hand.add('a.test', '!a', '$1');
    hand.add('b.test', '!a', '$1');
    hand.add('b.test', '!a', '$2');
    expect([hand.of('a.test'), hand.of('b.test'), [...hand.originsIn('!a')]]).toEqual([1, 1, ['a.test', 'b.test']]);
    hand.remove('!a', ['$1']);
    expect([hand.of('a.test'), [...hand.originsIn('!a')]]).toEqual([0, ['b.test']]);
  });
});
