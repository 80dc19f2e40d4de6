import { type JsonObject, parseSyncFilter } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import type { AccountDataService } from '@rookery/users';
import { KeptAnswers } from './kept-answers.js';
import { WrittenRooms } from './written-rooms.js';

describe('answers to syncs that nobody waited for', () => {
  const clock = new FakeClock();
  const keptFor = (duration: string): KeptAnswers =>
    new KeptAnswers(Config.fromObject({ caches: { sync_response_cache_duration: duration } }), clock, {
      hasChanged: (_user: string, since: number) => changedAt > since,
      stream: { current: () => 5 },
    } as unknown as AccountDataService);
  let changedAt = 0;
  const answer = (n: number): JsonObject =>
    ({ next_batch: `s${n}`, rooms: new WrittenRooms() }) as unknown as JsonObject;
  let made = 0;
  const ask = (answers: KeptAnswers, signal: AbortSignal, key = 'a'): Promise<JsonObject> =>
    answers.get('@a:b', key, signal, async () => answer((made += 1)));
  const gone = AbortSignal.abort();
  const patient = new AbortController().signal;

  it('are there for who asks again, once, for so long', async () => {
    const answers = keptFor('2m');
    const first = await ask(answers, gone);
    expect((await ask(answers, patient, 'b'))['next_batch']).not.toBe(first['next_batch']);
    expect(await ask(answers, patient)).toBe(first);
    // Somebody has got it: from now on there is news.
    expect(await ask(answers, patient)).not.toBe(first);
    const second = await ask(answers, gone);
    await clock.advance(120_001);
    expect(await ask(answers, patient)).not.toBe(second);
  });

  it('are kept when the client goes away while it reads', async () => {
    const answers = keptFor('2m');
    const reading = new AbortController();
    const first = await ask(answers, reading.signal);
    reading.abort();
    expect(await ask(answers, patient)).toBe(first);
  });

  it('are given to nobody once they are not right any more, and not kept where that is set', async () => {
    const answers = keptFor('2m');
    const first = await ask(answers, gone);
    changedAt = 6;
    expect(await ask(answers, patient)).not.toBe(first);
    changedAt = 0;
    const never = keptFor('0');
    const other = await ask(never, gone);
    expect(await ask(never, patient)).not.toBe(other);
  });

  it('are of one filter, and not of another that names other rooms', async () => {
    const answers = keptFor('2m');
    const filters = [
      { room: { rooms: ['!a:b'] } },
      { room: { rooms: ['!c:d'] } },
      { room: { not_rooms: ['!a:b'] } },
      { room: { timeline: { rooms: ['!a:b'] } } },
      { room: { timeline: { not_rooms: ['!a:b'] } } },
      { 'org.matrix.msc4429.profile_fields': { ids: ['displayname'] } },
    ];
    const given = await Promise.all(
      filters.map((filter, n) => answers.get('@a:b', [parseSyncFilter(filter)], patient, async () => answer(n))),
    );
    expect(given.map((each) => each['next_batch'])).toEqual(filters.map((_, n) => `s${n}`));
  });

  it('are made once for requests that come at the same time', async () => {
    const answers = keptFor('2m');
    const [one, two] = await Promise.all([ask(answers, gone), ask(answers, patient)]);
    expect(one).toBe(two);
  });
});
