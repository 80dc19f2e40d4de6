import { Config } from '@rookery/platform';
import { eagernessOf } from './duties.js';

const roles = [
  ...['background', 'message_index', 'user_directory', 'media'],
  ...['federation_sender', 'push_sender', 'appservice_sender'],
];
/** Beside those, since one worker is named for it alone. */
const invites = 'invite_acceptor';

describe('Who wants a duty', () => {
  const config = (settings: object): Config =>
    Config.fromObject({
      ...{ server_name: 'home.test', redis: { enabled: true } },
      ...{ database: { name: 'psycopg2', args: { database: 'x' } }, ...settings },
    });
  const deployment = (settings: object): Config =>
    config({
      instance_map: { main: { host: 'localhost', port: 1 }, w: { host: 'localhost', port: 2 } },
      ...{ worker_replication_secret: 'shared', ...settings },
    });
  const wanted = (of: Config, isBeside: boolean): string =>
    roles.map((role) => `${role} ${eagernessOf(of, role, isBeside)}`).join(', ');
  const worker = (name: string, app = 'synapse.app.generic_worker'): object => ({ worker_app: app, worker_name: name });

  it('is whoever does not write, where all processes are alike', () => {
    expect(wanted(config({}), true)).toBe(roles.map((role) => `${role} wanted`).join(', '));
    expect(wanted(config({}), false)).toBe(roles.map((role) => `${role} spare`).join(', '));
    expect([eagernessOf(config({}), 'writer', true), eagernessOf(config({}), 'writer', false)]).toEqual([
      'never',
      'wanted',
    ]);
  });

  it('is the worker that the settings name, and the main process in need', () => {
    const named = {
      ...{ run_background_tasks_on: 'w', media_instance_running_background_jobs: 'v' },
      ...{ update_user_directory_from_worker: 'u', notify_appservices_from_worker: 'a' },
      ...{ send_federation: false, start_pushers: false },
    };
    const none = 'federation_sender never, push_sender never, appservice_sender never';
    const of = (name: string): string => wanted(deployment({ ...named, ...worker(name) }), true);
    expect(of('w')).toBe(`background wanted, message_index wanted, user_directory never, media never, ${none}`);
    expect(of('v')).toBe(`background never, message_index never, user_directory never, media wanted, ${none}`);
    expect(of('u')).toBe(`background never, message_index never, user_directory wanted, media never, ${none}`);
    expect(of('a')).toMatch(/^background never, .*, push_sender never, appservice_sender wanted$/);
    expect(wanted(deployment(named), false)).toBe(roles.map((role) => `${role} spare`).join(', '));
  });

  it('is whoever accepts invites for their users, by a setting of its own', () => {
    const named = { auto_accept_invites: { enabled: true, worker_to_run_on: 'i' } };
    expect(eagernessOf(deployment({ ...named, ...worker('i') }), invites, true)).toBe('wanted');
    expect(eagernessOf(deployment({ ...named, ...worker('w') }), invites, true)).toBe('never');
    expect(eagernessOf(deployment(named), invites, false)).toBe('spare');
    expect(eagernessOf(config({}), invites, true)).toBe('wanted');
  });

  it('is the main process among workers that nobody has named, or where it is named itself', () => {
    expect(wanted(deployment(worker('w')), true)).toMatch(
      /^background never, message_index never, user_directory never/,
    );
    const main = { run_background_tasks_on: 'master', update_user_directory_from_worker: 'main' };
    expect(wanted(deployment(main), false)).toMatch(
      /^background wanted, message_index wanted, user_directory wanted, media wanted/,
    );
    expect(wanted(deployment({ ...main, ...worker('w') }), true)).toMatch(/^background never/);
  });

  it('is a worker of the kind that there was for it, where the main process was told so the old way', () => {
    const ways = [
      ['user_directory', { update_user_directory: false }, 'synapse.app.user_dir'],
      ['appservice_sender', { notify_appservices: false }, 'synapse.app.appservice'],
      ['push_sender', { start_pushers: false }, 'synapse.app.pusher'],
      ['federation_sender', { send_federation: false }, 'synapse.app.federation_sender'],
    ] as const;
    for (const [role, old, app] of ways) {
      const of = (settings: object, isBeside: boolean): string =>
        eagernessOf(deployment({ ...old, ...settings }), role, isBeside);
      expect(of(worker('any name', app), true)).toBe('wanted');
      expect(of(worker('w'), true)).toBe('never');
      expect(of({}, false)).toBe('spare');
    }
  });
});
