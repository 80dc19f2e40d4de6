import { errorOfOther } from './remote-errors.js';

describe('errorOfOther', () => {
  it('passes on what another server refuses with', () => {
    expect(errorOfOther(403, 'M_FORBIDDEN', 'No')).toMatchObject({
      ...{ status: 403, errcode: 'M_FORBIDDEN', message: 'No' },
    });
    expect(errorOfOther(404, 'ORG.EXAMPLE.GONE', 'No')?.errcode).toBe('ORG.EXAMPLE.GONE');
  });

  it('passes on nothing that a client would take for the end of its own session', () => {
    for (const code of ['M_UNKNOWN_TOKEN', 'M_MISSING_TOKEN', 'M_UNAUTHORIZED', 'M_USER_LOCKED', 'M_USER_DEACTIVATED'])
      for (const status of [400, 401, 403, 404]) expect(errorOfOther(status, code, 'No')).toBeUndefined();
    expect(errorOfOther(401, 'M_FORBIDDEN', 'No')).toBeUndefined();
  });

  it('passes on nothing that a client would take for what this server can or will do', () => {
    for (const status of [400, 403, 404, 405]) expect(errorOfOther(status, 'M_UNRECOGNIZED', 'No')).toBeUndefined();
    expect(errorOfOther(429, 'M_LIMIT_EXCEEDED', 'No')).toBeUndefined();
    expect(errorOfOther(429, 'M_FORBIDDEN', 'No')).toBeUndefined();
    expect(errorOfOther(400, 'M_LIMIT_EXCEEDED', 'No')).toBeUndefined();
  });

  it('passes on no failure, and nothing that is no code', () => {
    for (const status of [200, 302, 500, 502]) expect(errorOfOther(status, 'M_FORBIDDEN', 'No')).toBeUndefined();
    for (const code of [undefined, 5, '', 'has spaces', 'x'.repeat(300), 'M_\n'])
      expect(errorOfOther(400, code, 'No')).toBeUndefined();
  });
});
