import { MatrixError } from '@rookery/matrix-types';
import { checkContent } from './content-rules.js';

describe('what may be said of the servers that take part in a room', () => {
  const refused = (serverName: string, content: object): string | undefined => {
    try {
      checkContent('m.room.server_acl', '', { ...content }, serverName);
      return undefined;
    } catch (error) {
      return MatrixError.is(error) ? error.errcode : String(error);
    }
  };

  it.each<[string, object, boolean]>([
    ['home.test:8448', { allow: ['*'] }, true],
    ['home.test', { allow: ['*'], allow_ip_literals: false }, true],
    ['home.test', { allow: ['other.test'] }, false],
    ['home.test', { allow: ['*'], deny: ['home.*'] }, false],
    ['192.0.2.1:8448', { allow: ['*'] }, true],
    ['192.0.2.1:8448', { allow: ['*'], allow_ip_literals: false }, false],
    ['[2001:db8::1]', { allow: ['*'], allow_ip_literals: false }, false],
  ])('lets no server lock itself out: %s, %j', (serverName, content, isAllowed) => {
    expect(refused(serverName, content)).toBe(isAllowed ? undefined : 'M_BAD_JSON');
  });
});
