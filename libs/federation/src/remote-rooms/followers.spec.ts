import type { RoomEvent } from '@rookery/events';
import { followerWithStateOf } from './followers.js';

const eventOf = (eventId: string, prevEventIds: string[], stateKey?: string): RoomEvent =>
  ({ eventId, prevEventIds, stateKey }) as unknown as RoomEvent;

describe('whose state an event of the past has', () => {
  const root = eventOf('$root', ['$unknown']);
  const pageOf = (...events: RoomEvent[]): Map<string, RoomEvent> =>
    new Map([root, ...events].map((event) => [event.eventId, event]));

  it('is that of what follows upon messages that follow upon it', () => {
    const page = pageOf(eventOf('$a', ['$root']), eventOf('$b', ['$root', '$a']));
    const follower = eventOf('$e', ['$a', '$b']);
    expect(followerWithStateOf(root, page, [eventOf('$no', ['$elsewhere']), follower])).toBe(follower);
    expect(followerWithStateOf(root, pageOf(), [eventOf('$e', ['$root'])])).toBeDefined();
  });

  it.each<[string, RoomEvent, Map<string, RoomEvent>, RoomEvent]>([
    ['something changes the state in between', root, pageOf(eventOf('$a', ['$root'], '')), eventOf('$e', ['$a'])],
    ['it changes the state itself', eventOf('$root', ['$unknown'], ''), pageOf(), eventOf('$e', ['$root'])],
    ['what follows changes the state', root, pageOf(), eventOf('$e', ['$root'], '')],
    ['what follows has other ancestors', root, pageOf(), eventOf('$e', ['$root', '$other'])],
    ['what lies between has other ancestors', root, pageOf(eventOf('$a', ['$root', '$x'])), eventOf('$e', ['$a'])],
    ['what lies between begins anew', root, pageOf(eventOf('$a', [])), eventOf('$e', ['$root', '$a'])],
    ['what follows names none', root, pageOf(), eventOf('$e', [])],
  ])('is not known where %s', (_, of, page, follower) => {
    expect(followerWithStateOf(of, new Map(page).set(of.eventId, of), [follower])).toBeUndefined();
  });
});
