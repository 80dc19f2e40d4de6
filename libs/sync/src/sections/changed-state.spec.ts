import type { StoredEvent } from '@rookery/rooms';
import type { StateDelta } from '../model/rooms.js';
import { changedState } from './changed-state.js';

const delta = (streamId: number, stateKey: string, eventId: string | undefined): StateDelta => ({
  ...{ streamId, roomId: '!r:here', type: 'm.room.member', stateKey, eventId, prevEventId: undefined },
});
const shown = (streamOrdering: number, eventId: string): StoredEvent =>
  ({ streamOrdering, event: { eventId } }) as unknown as StoredEvent;

describe('changedState', () => {
  it('tells what the timeline does not tell, and what held before it where it does', () => {
    const deltas = [
      ...[
        delta(1, '@a:here', '$a1'),
        delta(2, '@b:here', '$b1'),
        delta(3, '@a:here', '$a2'),
        delta(4, '@c:here', '$c1'),
      ],
      ...[delta(5, '@c:here', undefined), delta(6, '@a:here', '$a3'), delta(7, '@d:here', '$d1')],
    ];
    const timeline = [shown(6, '$a3'), shown(7, '$d1')];
    expect([...changedState(deltas, timeline, false).values()].toSorted()).toEqual(['$a2', '$b1']);
    expect([...changedState(deltas, timeline, true).values()].toSorted()).toEqual(['$a3', '$b1', '$d1']);
    expect([...changedState(deltas, [], false).values()].toSorted()).toEqual(['$a3', '$b1', '$d1']);
  });

  it('looks at each change a few times, however much of it the timeline tells', () => {
    let looked = 0;
    const counted = (streamId: number): StateDelta => {
      const { stateKey, ...rest } = delta(streamId, `@u${streamId}:here`, `$${streamId}`);
      return {
        ...rest,
        get stateKey() {
          looked++;
          return stateKey;
        },
      };
    };
    const deltas = Array.from({ length: 2_000 }, (_, index) => counted(index + 1));
    const timeline = deltas.slice(-1_000).map(({ streamId }) => shown(streamId, `$${streamId}`));
    expect(changedState(deltas, timeline, false).size).toBe(1_000);
    expect(looked).toBeLessThan(10_000);
  });
});
