import { Module } from '@nestjs/common';
import { UserHooksModule } from '../user-hooks.module.js';
import { ConsentService } from '../consent/consent.service.js';
import { MonthlyActiveUsers } from './monthly-active-users.service.js';
import { ParticipationGate } from './participation-gate.js';

const services = [ConsentService, MonthlyActiveUsers, ParticipationGate];

/** Who takes part: consent to the policy, and how many users there may be. */
@Module({ imports: [UserHooksModule], providers: services, exports: services })
export class UsageModule {}
