import { UserPorts } from '@rookery/users';
import { BackgroundTasks } from '@rookery/platform';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { ssoMigrations } from './sso-session.query.js';
import { SsoSessions } from './sso-sessions.js';

eachDatabase('what sign-ons remember', (open) => {
  const clock = new FakeClock();
  let place: TestDatabase;
  let sessions: SsoSessions;
  beforeEach(async () => {
    place = await open(clock);
    await place.migrate(ssoMigrations);
    sessions = new SsoSessions(place.database, clock, new BackgroundTasks(clock), new UserPorts());
  });
  afterEach(() => place.close());

  it('is found until it expires, changed, and taken once', async () => {
    expect(await sessions.put('new_user', 'a', { x: 1 }, 1_000)).toBe(true);
    expect(await sessions.put('new_user', 'a', { x: 2 }, 1_000)).toBe(false);
    expect(await sessions.find('new_user', 'a')).toEqual({ x: 1 });
    expect(await sessions.find('login_fields', 'a')).toBeUndefined();
    expect(await sessions.update('new_user', 'a', { x: 'ü' })).toBe(true);
    expect(await sessions.update('new_user', 'b', {})).toBe(false);
    const taken = await Promise.all([sessions.take('new_user', 'a'), sessions.take('new_user', 'a')]);
    expect(taken.filter((one) => one !== undefined)).toEqual([{ x: 'ü' }]);
    await sessions.put('new_user', 'c', {}, 1_000);
    await clock.advance(1_000);
    expect(await sessions.find('new_user', 'c')).toBeUndefined();
    expect(await sessions.take('new_user', 'c')).toBeUndefined();
  });

  it('counts an answer once, also when it comes twice at the same time', async () => {
    const used = await Promise.all([1, 2, 3].map(() => sessions.useOnce('an answer', 1_000)));
    expect(used.filter(Boolean)).toHaveLength(1);
    expect(await sessions.useOnce('another answer', 1_000)).toBe(true);
  });

  it('holds no secret, and nothing for longer than it is of use', async () => {
    await sessions.put('new_user', 'a secret', {}, 1_000);
    await sessions.put('new_user', 'later', {}, 5_000);
    const rows = await place.database.query<{ id_hash: string }>('SELECT id_hash FROM sso_sessions');
    expect(JSON.stringify(rows)).not.toContain('a secret');
    await clock.advance(2_000);
    await sessions.purge();
    expect(await place.database.query('SELECT id_hash FROM sso_sessions')).toHaveLength(1);
  });
});
