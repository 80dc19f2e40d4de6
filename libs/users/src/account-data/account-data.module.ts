import { Module } from '@nestjs/common';
import { UserHooksModule } from '../user-hooks.module.js';
import { AccountDataService } from './account-data.service.js';
import { FilterStore } from './filter-store.js';

const services = [AccountDataService, FilterStore];

/** What clients keep of users: account data and filters. */
@Module({ imports: [UserHooksModule], providers: services, exports: services })
export class AccountDataModule {}
