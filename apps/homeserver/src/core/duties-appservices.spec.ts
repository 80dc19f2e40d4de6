import { appserviceSenderRole } from '@rookery/appservices';
import { Config } from '@rookery/platform';
import type { Eagerness } from '@rookery/replication';
import { eagernessOf } from './duties.js';

describe('Sending to application services', () => {
  const shared = {
    ...{ server_name: 'home.test', redis: { enabled: true }, database: { name: 'psycopg2', args: {} } },
    worker_replication_secret: 's',
  };
  const eagerness = (settings: object, isBeside = false): Eagerness =>
    eagernessOf(Config.fromObject({ ...shared, ...settings }), appserviceSenderRole.name, isBeside);
  const instances = { instance_map: { main: { host: 'localhost', port: 1 } } };
  const worker = (name: string, app = 'synapse.app.generic_worker'): object => ({
    ...{ ...instances, worker_app: app, worker_name: name, worker_listeners: [] },
  });

  it('is for those that do not write, where all processes are alike', () => {
    expect([eagerness({}, true), eagerness({})]).toEqual(['wanted', 'spare']);
    const one = { notify_appservices_from_worker: 'master' };
    expect([eagerness(one, true), eagerness(one)]).toEqual(['wanted', 'spare']);
  });

  it('is for the worker that is named, and for the main process while that is away or none is', () => {
    const named = { notify_appservices_from_worker: 'as1' };
    expect(eagerness({ ...instances, ...named })).toBe('spare');
    expect(eagerness({ ...worker('as1'), ...named }, true)).toBe('wanted');
    expect(eagerness({ ...worker('reader'), ...named }, true)).toBe('never');
    const reader = { instance_map: { ...instances.instance_map, reader: { host: 'localhost', port: 2 } } };
    expect(eagerness(reader)).toBe('wanted');
    expect(eagerness({ ...worker('reader'), ...reader }, true)).toBe('never');
  });

  it('is for a worker of that kind, where the old form leaves it to one', () => {
    const left = { notify_appservices: false };
    expect(eagerness({ ...instances, ...left })).toBe('spare');
    expect(eagerness({ ...worker('as1', 'synapse.app.appservice'), ...left }, true)).toBe('wanted');
    expect(eagerness({ ...worker('reader'), ...left }, true)).toBe('never');
  });
});
