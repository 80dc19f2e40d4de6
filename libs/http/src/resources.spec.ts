import { resourceFilter } from './resources.js';

const room = '!room%2Fwith:example.org';
const user = '@ann:example.org';

describe('the resources of a listener', () => {
  it.each([
    '/_matrix/media/v3/download/example.org/abc',
    '/_matrix/client/v1/media/config',
    '/_matrix/federation/v1/media/download/abc',
    '/_synapse/admin/v1/purge_media_cache',
    '/_synapse/admin/v1/media/delete',
    '/_synapse/admin/v1/media/example.org/abc',
    '/_synapse/admin/v1/media/quarantine_changes',
    `/_synapse/admin/v1/quarantine_media/${room}`,
    `/_synapse/admin/v1/room/${room}/media`,
    `/_synapse/admin/v1/room/${room}/media/quarantine`,
    `/_synapse/admin/v1/user/${user}/media/quarantine`,
    `/_synapse/admin/v1/users/${user}/media`,
  ])('of `media` are files and what administrators do with them: %s', (path) => {
    expect(resourceFilter(['media'])(path)).toBe(true);
    expect(resourceFilter(['federation', 'consent', 'metrics'])(path)).toBe(/^\/_matrix\/(?:media|fed)/.test(path));
  });

  it.each([
    '/_synapse/admin/v1/register',
    '/_synapse/admin/v2/users',
    `/_synapse/admin/v2/users/${user}`,
    `/_synapse/admin/v1/users/${user}/login`,
    `/_synapse/admin/v1/rooms/${room}/media`,
    '/_synapse/admin/v1/mediator',
    '/_matrix/client/v3/sync',
    '/',
  ])('of `media` are nothing else: %s', (path) => {
    expect(resourceFilter(['media'])(path)).toBe(false);
    expect(resourceFilter(['client', 'media'])(path)).toBe(true);
  });
});
