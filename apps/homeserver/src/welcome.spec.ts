import { firstAdministratorCommand } from './welcome.js';

describe('the command for the first account', () => {
  it('has the name that it has where the server is installed', () => {
    const file = '/etc/rookery/homeserver.yaml';
    const inClone = firstAdministratorCommand(file, 'file:///home/me/rookery/apps/homeserver/dist/welcome.js');
    expect(inClone).toMatch(/^npx rookery register-user --config \S+ --admin$/);
    const installed = 'file:///opt/rookery/lib/node_modules/@rookery/homeserver/dist/welcome.js';
    expect(firstAdministratorCommand(file, installed)).toMatch(/^rookery register-user --config \S+ --admin$/);
  });
});
