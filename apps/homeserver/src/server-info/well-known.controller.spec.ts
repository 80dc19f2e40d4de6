import { isValidServerName } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import type { AuthenticationService } from '@rookery/users';
import { WellKnownController } from './well-known.controller.js';

describe('the document in which a server says where it is', () => {
  it.each([
    ['example.org', 'example.org:443'],
    ['example.org:8448', 'example.org:8448'],
    ['[::1]', '[::1]:443'],
    ['[::1]:8448', '[::1]:8448'],
  ])('of %s names %s', (server_name, named) => {
    const config = Config.fromObject({ server_name, serve_server_wellknown: true });
    const { body } = new WellKnownController(config, {} as AuthenticationService).server();
    expect(JSON.parse(body as string)).toEqual({ 'm.server': named });
    expect(isValidServerName(named)).toBe(true);
  });
});
