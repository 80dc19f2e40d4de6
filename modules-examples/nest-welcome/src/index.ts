import { Module } from '@nestjs/common';
import { nestModule } from '@rookery/nest';
import { Settings } from './settings.js';
import { WelcomeController } from './welcome.controller.js';
import { WelcomeService } from './welcome.service.js';

@Module({ providers: [WelcomeService], controllers: [WelcomeController] })
class WelcomeModule {}

/** Welcomes those who join a room. */
const module = nestModule({
  name: 'nest-welcome',
  settings: Settings,
  module: WelcomeModule,
  webResource: '/_synapse/client/welcome',
});
export { module as default };
